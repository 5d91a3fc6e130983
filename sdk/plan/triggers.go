package plan

import (
	"fmt"
	"strings"
	"time"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"

	"github.com/millstream/millstream/sdk/trigger"
)

// triggerOf translates the trigger of a collection, which is canonical. Beam's default trigger is ours: once at the end of
// the window, and then for each late element.
func triggerOf(t trigger.Trigger) (*pipepb.Trigger, error) {
	if early, late, ok := trigger.Counts(t); ok && early == 0 && late == 1 {
		return &pipepb.Trigger{Trigger: &pipepb.Trigger_Default_{Default: &pipepb.Trigger_Default{}}}, nil
	}
	return partOf(t)
}

// partOf translates a trigger that others may be made of.
func partOf(t trigger.Trigger) (*pipepb.Trigger, error) {
	out := &pipepb.Trigger{}
	var err error
	part := func(t trigger.Trigger) *pipepb.Trigger {
		if t == nil || err != nil {
			return nil
		}
		var p *pipepb.Trigger
		p, err = partOf(t)
		return p
	}
	parts := func(ts []trigger.Trigger) (ps []*pipepb.Trigger) {
		for _, t := range ts {
			ps = append(ps, part(t))
		}
		return ps
	}
	switch t := t.(type) {
	case trigger.Watermark:
		out.Trigger = &pipepb.Trigger_AfterEndOfWindow_{AfterEndOfWindow: &pipepb.Trigger_AfterEndOfWindow{
			EarlyFirings: part(t.EarlyPart), LateFirings: part(t.LatePart),
		}}
	case trigger.Count:
		out.Trigger = &pipepb.Trigger_ElementCount_{ElementCount: &pipepb.Trigger_ElementCount{ElementCount: int32(t.N)}}
	case trigger.ProcessingTime:
		if t.Synchronized {
			out.Trigger = &pipepb.Trigger_AfterSynchronizedProcessingTime_{
				AfterSynchronizedProcessingTime: &pipepb.Trigger_AfterSynchronizedProcessingTime{},
			}
			break
		}
		out.Trigger = &pipepb.Trigger_AfterProcessingTime_{AfterProcessingTime: &pipepb.Trigger_AfterProcessingTime{TimestampTransforms: transforms(t)}}
	case trigger.First:
		out.Trigger = &pipepb.Trigger_AfterAny_{AfterAny: &pipepb.Trigger_AfterAny{Subtriggers: parts(t.Of)}}
	case trigger.All:
		out.Trigger = &pipepb.Trigger_AfterAll_{AfterAll: &pipepb.Trigger_AfterAll{Subtriggers: parts(t.Of)}}
	case trigger.Each:
		out.Trigger = &pipepb.Trigger_AfterEach_{AfterEach: &pipepb.Trigger_AfterEach{Subtriggers: parts(t.Of)}}
	case trigger.Finally:
		out.Trigger = &pipepb.Trigger_OrFinally_{OrFinally: &pipepb.Trigger_OrFinally{Main: part(t.Main), Finally: part(t.Until)}}
	case trigger.Repeat:
		out.Trigger = &pipepb.Trigger_Repeat_{Repeat: &pipepb.Trigger_Repeat{Subtrigger: part(t.Of)}}
	case trigger.NeverFires:
		out.Trigger = &pipepb.Trigger_Never_{Never: &pipepb.Trigger_Never{}}
	case trigger.AlwaysFires:
		out.Trigger = &pipepb.Trigger_Always_{Always: &pipepb.Trigger_Always{}}
	default:
		return nil, fmt.Errorf("the trigger %T has no translation: add it to sdk/plan/triggers.go", t)
	}
	return out, err
}

// transforms is what takes the clock at the first element to the time of t. There is a delay also if it is 0: Beam's
// Python SDK reads the first without looking.
func transforms(t trigger.ProcessingTime) []*pipepb.TimestampTransform {
	out := []*pipepb.TimestampTransform{{TimestampTransform: &pipepb.TimestampTransform_Delay_{
		Delay: &pipepb.TimestampTransform_Delay{DelayMillis: t.Delay.Milliseconds()},
	}}}
	if t.Period != 0 {
		out = append(out, &pipepb.TimestampTransform{TimestampTransform: &pipepb.TimestampTransform_AlignTo_{
			AlignTo: &pipepb.TimestampTransform_AlignTo{Period: t.Period.Milliseconds(), Offset: t.Offset.Milliseconds()},
		}})
	}
	return out
}

// triggerText is the way back from triggerOf, for readers. Triggers that differ have texts that differ.
func triggerText(t *pipepb.Trigger) string {
	switch t := t.GetTrigger().(type) {
	case *pipepb.Trigger_Default_:
		return "at the end, then each late element"
	case *pipepb.Trigger_AfterEndOfWindow_:
		text := "at the end"
		if early := t.AfterEndOfWindow.EarlyFirings; early != nil {
			text += ", before it " + repeatedText(early)
		}
		if late := t.AfterEndOfWindow.LateFirings; late != nil {
			text += ", after it " + repeatedText(late)
		}
		return text
	case *pipepb.Trigger_ElementCount_:
		return "after " + elements(t.ElementCount.ElementCount)
	case *pipepb.Trigger_AfterProcessingTime_:
		return delayText(t.AfterProcessingTime.TimestampTransforms)
	case *pipepb.Trigger_AfterSynchronizedProcessingTime_:
		return "in processing time as soon as may be"
	case *pipepb.Trigger_AfterAny_:
		return partsText("the first of", " or ", t.AfterAny.Subtriggers...)
	case *pipepb.Trigger_AfterAll_:
		return partsText("all of", " and ", t.AfterAll.Subtriggers...)
	case *pipepb.Trigger_AfterEach_:
		return partsText("in turn", " then ", t.AfterEach.Subtriggers...)
	case *pipepb.Trigger_OrFinally_:
		return partsText("", " until ", t.OrFinally.Main, t.OrFinally.Finally)
	case *pipepb.Trigger_Repeat_:
		return repeatedText(t.Repeat.Subtrigger)
	case *pipepb.Trigger_Never_:
		return "at the expiry only"
	case *pipepb.Trigger_Always_:
		return "always"
	}
	return t.String()
}

// repeatedText is the text of a trigger that begins anew when it is finished.
func repeatedText(t *pipepb.Trigger) string {
	if c := t.GetElementCount(); c != nil {
		return "every " + strings.TrimPrefix(elements(c.ElementCount), "1 ")
	}
	return partsText("repeatedly", "", t)
}

func elements(n int32) string {
	if n == 1 {
		return "1 element"
	}
	return fmt.Sprintf("%d elements", n)
}

func partsText(what, between string, ts ...*pipepb.Trigger) string {
	texts := make([]string, len(ts))
	for i, t := range ts {
		texts[i] = "(" + triggerText(t) + ")"
	}
	return strings.TrimPrefix(what+" ", " ") + strings.Join(texts, between)
}

func delayText(ts []*pipepb.TimestampTransform) string {
	text, at := "the first element", "at "
	for _, t := range ts {
		switch t := t.GetTimestampTransform().(type) {
		case *pipepb.TimestampTransform_Delay_:
			text, at = fmt.Sprintf("%s after %s", short(time.Duration(t.Delay.DelayMillis)*time.Millisecond), text), ""
		case *pipepb.TimestampTransform_AlignTo_:
			from := ""
			if t.AlignTo.Offset != 0 {
				from = " from " + short(time.Duration(t.AlignTo.Offset)*time.Millisecond)
			}
			text, at = fmt.Sprintf("the next multiple of %s%s, %s", short(time.Duration(t.AlignTo.Period)*time.Millisecond), from, text), "at "
		}
	}
	return at + text
}
