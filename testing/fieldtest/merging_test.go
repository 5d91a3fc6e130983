package fieldtest

import (
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/window"
)

func sessionsOfTwoKeys(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(0), of("k1", "a")...).At(at(3), of("k2", "b")...).At(at(7), of("k1", "c")...).Watermark(at(20))
	return grouped("groups", sdk.WindowInto("sessions", play(p, s), window.Sessions(5*ms)), false)
}

// https://github.com/apache/beam/pull/33542: sessions merged across keys, and the gap was applied twice.
func TestSessionsArePerKey(t *testing.T) {
	everywhere(t, "B1", "k1 [0,5) a", "k1 [7,12) c", "k2 [3,8) b")
}

func closedSession(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(0), k("a")...).Watermark(at(6)).At(at(3), k("b")...).Watermark(at(8)).At(at(2), k("c")...)
	return grouped("groups", sdk.WindowInto("sessions", play(p, s), window.Sessions(5*ms)), false)
}

// https://github.com/apache/beam/issues/18677: an element behind the watermark whose own session is open met one that was emitted
// and gone. That stays as it is (docs/design/windows.md).
func TestClosedSessionsAreNotTouched(t *testing.T) {
	everywhere(t, "B3", "k [0,5) a", "k [3,8) b", "late k [2,7) c")
}

func sessionsGroupedAgain(p *sdk.Pipeline, _ string) sdk.PCollection[string] {
	s := script{}.At(at(0), of("u1", "p")...).At(at(5), of("u2", "p")...)
	users := sdk.GroupByKey("by user", sdk.WindowInto("sessions", play(p, s), window.Sessions(15*ms)))
	return grouped("groups", sdk.Map("by page", users, func(kv sdk.KV[string, sdk.Iterable[string]]) pair { return sdk.Pair("p", kv.Key) }), false)
}

// https://github.com/apache/beam/issues/20438: a second grouping merged the sessions of different users.
func TestSessionsDoNotMergeAgain(t *testing.T) {
	everywhere(t, "B5", "p [0,15) u1", "p [5,20) u2")
}
