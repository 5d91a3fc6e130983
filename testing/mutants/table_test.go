package mutants

// Finders. A random test runs until it fails, so that its number of runs matters to survivors only.
var (
	randomJobs = finder{"./internal/engine", "TestRandomJobsAreExact", []string{"-engine.runs=3000"}}
	lateJobs   = finder{"./internal/engine", "TestPanesAndLatenessAreExact", []string{"-engine.runs=4000"}}
	faultyJobs = finder{"./internal/engine", "TestFailingStepEndsTheJob", []string{"-engine.runs=1000"}}
	scripts    = finder{"./internal/engine", "TestAlignerScripts", nil}
	inbox      = finder{"./internal/engine", "TestInbox|TestNewer|TestStatus|TestMark|TestNothing|TestQueued|TestSender|TestRoom|TestHeld|TestOnly|TestRestoredItems|TestStopped|TestMail", nil}
	merger     = finder{"./internal/engine", "TestMerger|TestRestoredMerger", nil}
	table      = finder{"./internal/kernel", "TestTable|TestRange", []string{"-kernel.runs=1000"}}
	panes      = finder{"./internal/kernel", "TestAggregate", nil}
	async      = finder{"./internal/kernel", "TestAsync|TestOrdered", nil}
	asyncJobs  = finder{"./runners/direct", "TestMapAsyncIsExactlyOnce|TestWatermarkWaits|TestMapAsyncIsBounded|TestBarriersDoNotWait|TestCallsEnd", []string{"-ptest.runs=300"}}
	cells      = finder{"./internal/kernel", "TestCellsAgreeWithNaive|TestStoredCells", nil}
	reads      = finder{"./sdk/state", "TestReadsProlong", nil}
	blocks     = finder{"./sdk/state", "TestBlocks", nil}
	sided      = finder{"./internal/kernel", "TestSided", nil}
	windows    = finder{"./internal/kernel", "TestSliding|TestSessions|TestLift", nil}
	twins      = finder{"./testing/twin", "TestPanesIsTheTwin$|TestPanesFollow", []string{"-rapid.checks=20000"}}
	triggers   = finder{"./internal/triggering", "Test", nil}
	keyedSteps = finder{"./internal/kernel", "TestKeyedStep|Timer", nil}
	endOfTime  = finder{"./testing/runnertest", "TestDirectRunner", []string{"-conformance.cases=EndOfTime"}}
	holdIndex  = finder{"./internal/kernel", "TestHolds", nil}
)

const (
	subtaskGo    = "internal/engine/subtask.go"
	barrierGo    = "internal/engine/barrier.go"
	chainGo      = "internal/engine/chain.go"
	inboxGo      = "internal/engine/inbox.go"
	alignerGo    = "internal/engine/aligner.go"
	mergerGo     = "internal/engine/merger.go"
	jobGo        = "internal/engine/job.go"
	tableGo      = "internal/kernel/table.go"
	passGo       = "internal/kernel/tablepass.go"
	snapshotGo   = "internal/kernel/tablesnapshot.go"
	aggregateGo  = "internal/kernel/aggregate.go"
	ttlGo        = "internal/kernel/keyedttl.go"
	keyedGo      = "internal/kernel/keyedpardo.go"
	cellGo       = "sdk/state/state.go"
	valueGo      = "sdk/state/value.go"
	blocksGo     = "sdk/state/blocks.go"
	paneGo       = "internal/kernel/pane.go"
	slicesGo     = "internal/kernel/slices.go"
	liftGo       = "internal/kernel/lift.go"
	panesGo      = "internal/kernel/panes.go"
	firingGo     = "internal/kernel/panefiring.go"
	machineGo    = "internal/triggering/machine.go"
	holdsGo      = "internal/kernel/holds.go"
	timersGo     = "internal/kernel/keyedtimers.go"
	clockGo      = "internal/kernel/keyedclock.go"
	pardoGo      = "internal/kernel/pardo.go"
	asyncGo      = "internal/kernel/async.go"
	callsGo      = "internal/engine/async.go"
	sidesGo      = "internal/engine/sides.go"
	sidedGo      = "internal/kernel/sided.go"
	viewGo       = "internal/kernel/sideview.go"
	waitGo       = "internal/kernel/sidewait.go"
	splitGo      = "internal/kernel/split.go"
	checkpointGo = "internal/checkpoint/checkpoint.go"
	eventtimeGo  = "internal/eventtime/eventtime.go"
)

// mutants are the planted faults, by the invariants of docs/design/engine.md.
var mutants = []mutant{
	// 1. One park point.
	{"parking after a flush that waited loses a wake-up", subtaskGo,
		"if s.chain.released(); s.waited || s.chain.advancing && !s.chain.full() {", "if s.chain.released(); s.chain.advancing {", randomJobs},
	{"a sender that waits is not woken by room", inboxGo,
		"if c.waiting != nil && c.batches < b.room {", "if false {", randomJobs},
	{"a stopped job leaves waiting senders asleep", inboxGo,
		"wake = append(wake, p)\n", "", inbox},
	{"a failing step does not stop the others", jobGo,
		"	for _, s := range j.subtasks {\n\t\ts.inbox.stop(ErrStopped)\n\t}\n", "", faultyJobs},
	{"an operator is closed that was not opened", subtaskGo,
		"for i := s.chain.opened - 1;", "for i := len(s.chain.ops) - 1;", faultyJobs},
	{"a panic in a close ends the closing", subtaskGo,
		"errors.Join(err, s.guard(func() error { return s.chain.closeOp(i) }))", "errors.Join(err, s.chain.closeOp(i))", faultyJobs},

	// 2. A batch is atomic.
	{"a popped batch is recorded after it was processed", subtaskGo,
		"if err := s.record(p.channel, p.Item); err != nil {\n\t\t\treturn err\n\t\t}", "defer s.record(p.channel, p.Item)", randomJobs},

	// 3. A barrier comes after what was before it and before what was after it.
	{"operators are not emptied before a barrier", barrierGo,
		"was := s.force\n\ts.force = was || overtaking\n\terr := s.chain.flush()", "was := s.force\n\ts.force = was || overtaking\n\tvar err error", randomJobs},
	{"operators are not emptied before a watermark", chainGo,
		"if err := c.flushOp(c.pos); err != nil {\n\t\treturn false, err\n\t}", "", randomJobs},
	{"part-full batches follow the watermark", chainGo,
		"if err := e.split.Flush(e.send); err != nil {\n\t\treturn err\n\t}\n\te.wm", "e.wm", randomJobs},

	// 4. Markers need no credit.
	{"markers need room", inboxGo,
		"if it.kind == itemBatch && c.batches >= b.room && !force {", "if c.n >= b.room {", inbox},
	{"a status replaces one across a mark", inboxGo,
		"c.n > 0 && !(c.over.checkpoint != 0 && c.over.seq == c.popped+uint64(c.n)) {", "c.n > 0 {", inbox},
	{"a status replaces what is not a status", inboxGo,
		"if last := c.at(c.n - 1); last.kind == itemStatus {", "if last := c.at(c.n - 1); last.kind != itemBatch {", inbox},

	// 5. Only an aligned barrier holds a channel.
	{"an overtaking barrier leaves channels held", alignerGo,
		"return append(acts, action{actRelease, 0, a.current}, action{actTakeOver, 0, a.current})", "return append(acts, action{actTakeOver, 0, a.current})", scripts},
	{"a newer barrier leaves channels held", alignerGo,
		"acts = append(acts, action{actRelease, 0, a.current}, action{actAbort, 0, a.current})", "acts = append(acts, action{actAbort, 0, a.current})", scripts},
	{"a held channel is popped", inboxGo,
		"if c.n == 0 || c.held ||", "if c.n == 0 ||", randomJobs},
	{"a finished channel does not count as aligned", alignerGo,
		"if !a.arrived[i] && !a.finished[i] {", "if !a.arrived[i] {", scripts},
	{"a barrier is popped from an aligned channel only when it is the last", alignerGo,
		"a.phase = phaseAligning\n\tif !a.all() {", "a.phase = phaseAligning\n\tif false {", scripts},

	// 6. A channel has room for one batch of any size.
	{"a channel has no room for one batch", inboxGo,
		"c.batches >= b.room && !force", "c.batches+1 >= b.room && !force", inbox},
	{"a sender waits although a barrier overtakes", subtaskGo,
		"if urgent || s.overdue() {", "if urgent && false || s.overdue() {", inbox},
	{"a sender waits although its aligned barrier is overdue", subtaskGo,
		"if urgent || s.overdue() {", "if urgent {", inbox},

	// 7. Overtaking.
	{"a pop goes past a mark that waits", inboxGo,
		"if b.overtaking {\n\t\tb.mu.Unlock()\n\t\treturn popped{}, false\n\t}\n", "", randomJobs},
	{"a mark stands one item too late", inboxGo,
		"c.over = mark{checkpoint, c.popped + uint64(c.n)}", "c.over = mark{checkpoint, c.popped + uint64(c.n) + 1}", inbox},
	{"a queued barrier becomes a mark one item too late", inboxGo,
		"c.over = mark{checkpoint, seq}", "c.over = mark{checkpoint, seq + 1}", inbox},
	{"what is queued before a mark is not recorded", alignerGo,
		"return a.completeIfAll(append(acts, action{actRecord, i, checkpoint}))", "return a.completeIfAll(acts)", randomJobs},
	{"what is popped before a barrier is not recorded", subtaskGo,
		"if s.aligner.Recording(p.channel) && p.kind != itemBarrier {", "if false {", randomJobs},
	{"what is popped is recorded also behind its barrier", alignerGo,
		"return a.phase == phaseRecording && !a.arrived[i] && !a.finished[i]", "return a.phase == phaseRecording && !a.finished[i]", randomJobs},
	{"restored items go behind what was pushed", inboxGo,
		"for _, it := range items {\n\t\tc.push(it)\n\t}\n\tc.restored = c.batches\n\tfor _, it := range later {", "for _, it := range later {\n\t\tc.push(it)\n\t}\n\tfor _, it := range items {", inbox},
	{"restored batches give credits", inboxGo,
		"if c.restored > 0 {", "if false {", randomJobs},
	{"a sender in another process gets no credit", inboxGo,
		"credit = c.credit\n", "credit = nil\n", randomJobs},
	{"an aligned barrier does not end the recording of its channel", alignerGo,
		"return a.completeIfAll(acts) // everything", "return acts // everything", scripts},

	// 8. A watermark goes on only when everything that it fires is done.
	{"a watermark is announced before its firing is done", subtaskGo,
		"if !done {\n\t\t\tif err := failpoint", "if !done {\n\t\t\tif err := s.announce(); err != nil {\n\t\t\t\treturn false, err\n\t\t\t}\n\t\t\tif err := failpoint", randomJobs},
	{"a firing is done after its first slice", chainGo,
		"if in > o.wm || c.firing {", "if in > o.wm {", randomJobs},
	{"an unfinished firing is not gone on with after a restore", subtaskGo,
		"s.chain.restoredTo(w)", "s.chain.advanceTo(w)", lateJobs},
	{"elements are taken in the midst of a firing", subtaskGo,
		"p, ok := s.inbox.pop(true)", "p, ok := s.inbox.pop(false)", lateJobs},
	{"a firing forgets how far it came", passGo,
		"for ; !f.spilled; f.at++ {", "for f.at = 0; !f.spilled; f.at++ {", table},
	{"an entry is fired again from the backend", passGo,
		"if e, err := t.find(s, k); e != nil || err != nil {\n\t\t\treturn !more, err // resident", "if e, err := t.find(s, k); e != nil && err != nil {\n\t\t\treturn !more, err // resident", table},
	{"an entry that is gone is fired again", passGo,
		"if e.flags&flagDead != 0 {\n\t\t\tcontinue\n\t\t}\n\t\t*budget--", "*budget--", table},
	{"a snapshot in the midst of a firing brings fired entries back", passGo,
		"if err := t.tombstone(s, e.key); err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t\te.flags &^= flagStored", "e.flags &^= flagStored", table},
	{"a snapshot in the midst of a firing brings fired entries of the backend back", passGo,
		"r.End = statebackend.After(nil, s.cursor.after)\n\t\tt.open.DeleteRange(r)", "r.End = statebackend.After(nil, s.cursor.after)", table},
	{"a merged watermark goes back", mergerGo,
		"m.merged = max(m.merged, least)", "m.merged = least", merger},
	{"an input's watermark goes back", mergerGo,
		"in.wm, in.idle = max(in.wm, w), idle", "in.wm, in.idle = w, idle", merger},
	{"an idle input does not hold the end of time", mergerGo,
		" else if least == eventtime.Max && asleep < eventtime.Max {\n\t\treturn\n\t}\n", "\n", merger},
	{"an idle input holds the others", mergerGo,
		"asleep = min(asleep, in.wm)\n\t\t\tcontinue", "asleep = min(asleep, in.wm)", merger},
	{"what an input says as it goes idle is lost", mergerGo,
		"if m.idle {\n\t\tleast = asleep\n\t}", "if m.idle {\n\t\treturn\n\t}", merger},
	{"a restored input that has not spoken is idle", mergerGo,
		"m.in[i] = inputMark{wm: s.Inputs[i]}", "m.in[i] = inputMark{wm: s.Inputs[i], idle: s.Inputs[i] == eventtime.Min}", merger},

	// 9. Epochs.
	{"an entry is changed before the pending snapshot has it", tableGo,
		"if t.pending != nil {\n\t\tif err := t.pending.save(s, e); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\te.epoch = t.epoch\n\te.flags", "e.epoch = t.epoch\n\te.flags", table},
	{"an entry is evicted before the pending snapshot has it", tableGo,
		"if t.pending != nil {\n\t\tif err := t.pending.save(s, e); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tchanged :=", "changed :=", table},
	{"an entry is removed before the pending snapshot has it", tableGo,
		"if t.pending != nil {\n\t\tif err := t.pending.save(s, e); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tif e.flags&flagStored != 0 {", "if e.flags&flagStored != 0 {", table},
	{"an entry is gone before the pending snapshot has it", passGo,
		"if t.pending != nil {\n\t\tif err := t.pending.save(s, e); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\tt.drop(s, e)\n\te.epoch = 0", "t.drop(s, e)\n\te.epoch = 0", table},
	{"an entry is fired before the pending snapshot has it", aggregateGo,
		"if p := o.table.pending; p != nil {", "if p := o.table.pending; false {", panes},
	{"a window is dropped before the pending snapshot has it", tableGo,
		"if err := t.pending.saveSegment(s); err != nil {\n\t\t\treturn err\n\t\t}\n", "", table},
	{"a companion lacks what the backend does not hold", snapshotGo,
		"unheld := p.renew && e.flags&flagClean == 0", "unheld := false", table},
	{"a companion lacks what changed before the epoch", snapshotGo,
		"p.all = append([]*segment[K, A](nil), t.clock...)", "", table},
	{"a delta lacks what is resident and changed", snapshotGo,
		"if changed {\n\t\tp.delta.Put(k, v)", "if false {\n\t\tp.delta.Put(k, v)", table},
	{"a base is taken before the backend holds what was evicted", snapshotGo,
		"if err := t.writeBack(); err != nil {\n\t\t\treturn nil, err\n\t\t}\n", "", table},
	{"a snapshot takes up an entry that came after it", tableGo,
		", saved: t.epoch - 1}", "}", table},
	{"a snapshot takes up a version that was evicted after it", passGo,
		", flags: flagClean | flagStored}", "}", table},

	// 10. An eviction loses nothing.
	{"an evicted change is not in the delta", tableGo,
		"if changed {\n\t\t\tt.open.Put(k, v)\n\t\t}\n", "", table},
	{"an evicted entry is not in the backend", tableGo,
		"if e.flags&flagClean == 0 {\n\t\t\tt.writes.Put(k, v)\n\t\t}\n", "", table},
	{"an evicted entry is not looked for", tableGo,
		"if !s.spilled {\n\t\ts.spilled = true\n\t\tt.spilled++\n\t}\n", "", table},
	{"an entry that was loaded is not written again after a change", tableGo,
		"e.flags &^= flagClean\n", "", table},

	// 11. A removal leaves a tombstone.
	{"a removed entry comes back", tableGo,
		"if e.flags&flagStored != 0 {\n\t\tif err := t.tombstone(s, e.key)", "if false {\n\t\tif err := t.tombstone(s, e.key)", table},
	{"a dropped window comes back", tableGo,
		"if t.track {\n\t\t\tt.open.DeleteRange(r)\n\t\t}\n", "", table},
	{"a dropped window stays in the backend", tableGo,
		"t.writes.DeleteRange(r)\n\t}\n\tif s.spilled {", "}\n\tif s.spilled {", table},
	{"a dropped window takes along the keys of other subtasks", tableGo,
		"edge(t.owned.End)}", "edge(statebackend.KeyGroup(t.groups))}", table},

	// 12. At most one checkpoint is in progress at a subtask; checkpoints that are given up lose nothing.
	{"a newer snapshot takes the place of one not handed over", barrierGo,
		"if s.pending != nil { // one at a time: the older is finished first\n\t\tif err := s.encode(1 << 30); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n", "", randomJobs},
	{"an older barrier starts an alignment", alignerGo,
		"if checkpoint < a.current || checkpoint == a.current && a.phase == phaseNone {", "if checkpoint == a.current && a.phase == phaseNone {", scripts},
	{"the end of the last input forgets a triggered checkpoint", alignerGo,
		"return a.triggerIfOpen(acts) // a newer", "return acts // a newer", scripts},
	{"the changes of a snapshot that was given up are lost", barrierGo,
		"s.pending.Aborted, s.complete = true, true\n\t\t\t\terr = s.encode(1 << 30)", "s.pending = nil", randomJobs},
	{"deltas of checkpoints that were given up are lost", checkpointGo,
		"return &Keyed{Base: base, Deltas: slices.Clone(l.unconfirmed)}, nil", "return &Keyed{Base: base, Deltas: []Delta{d}}, nil", randomJobs},
	{"output of checkpoints that were given up is lost", checkpointGo,
		"l.prepared = append(l.prepared, Prepared{s.Checkpoint, n.Committables})", "l.prepared = []Prepared{{s.Checkpoint, n.Committables}}", randomJobs},

	// Windows and panes.
	{"lateness is a millisecond too long", aggregateGo,
		"return o.w >= expiry(w, o.Lateness)", "return o.w > expiry(w, o.Lateness)", panes},
	{"whether a key has fired on time is not stored", paneGo,
		"bit(h.onTime)|", "", panes},
	{"whether anything came is not restored", aggregateGo,
		"o.any = len(c.Restore.Blob) > 0 && c.Restore.Blob[0] == 1", "", panes},

	// Slices and sessions (docs/design/windows.md).
	{"a window that ended empty fires with what comes later", slicesGo,
		"o.slices.fired = w\n", "", windows},
	{"an interrupted firing emits keys again", slicesGo,
		"e.panes = number", "", windows},
	{"a restored step does not know which windows have fired", slicesGo,
		"o.slices.fired = eventtime.Time(binary.BigEndian.Uint64(c.Restore.Blob[1:]))", "", windows},
	{"a key is emitted from each of its slices", slicesGo,
		"if found, err := t.find(x.members[k], e.key); found != nil || err != nil {", "if _, err := t.find(x.members[k], e.key); err != nil {", windows},
	{"merging changes a slice", slicesGo,
		"return o.Clone(a)", "return a, nil", windows},
	{"slices that were evicted are not merged", slicesGo,
		"err = t.miss(s, e.key)", "err = nil", windows},
	{"a slice goes with the first window that fires", slicesGo,
		"last > x.fired {", "last > x.fired+1_000_000_000 {", windows},
	{"an element that is late for some windows is late for none", slicesGo,
		"s.fireAt = 0 //", "s.fireAt = never //", windows},
	{"sums that are late count as one element", liftGo,
		"o.dropped(sum.n)", "o.dropped(1)", windows},
	{"sums wait for more at a flush", liftGo,
		"err := l.drain(send)\n", "var err error\n", windows},
	{"sessions a gap apart merge", firingGo,
		"l[first-1].win.EndTime() > w.StartTime()", "l[first-1].win.EndTime() >= w.StartTime()", windows},
	{"a session that goes on does not fire at its new end", firingGo,
		"s.ended = s.ended && w.EndTime() <= o.w", "_ = 0", windows},
	{"panes of a merged session go on with the numbers of another", firingGo,
		"s.panes, s.early = 0, 0", "", twins},
	{"a session's wake-up does not come forward", panesGo,
		"wake = min(wake, o.next(s))", "", windows},
	{"sessions that were evicted are taken for none", panesGo,
		"err = o.state.miss(s, k.key)", "err = nil", windows},
	{"an ended session is changed without a touch", firingGo,
		"if err == nil && e.epoch != o.state.epoch {", "if false {", windows},
	{"what waits does not hold the watermark after the end of the window", panesGo,
		"hold = min(hold, o.heldAt(s), o.heldToRetract(s))", "hold = min(hold, o.heldToRetract(s))", twins},
	{"a clock is not set back after a firing", firingGo,
		"s.more.clock = o.nextClock(s)", "s.more.clock = noTime", twins},
	{"only one of the panes of merged sessions is taken back", firingGo,
		"m.prev = append(m.prev, n.prev...)", "", twins},
	{"a merged session forgets what its parts hold", firingGo,
		"m.hold, m.atEnd = o.combine(m.hold, n.hold), m.atEnd || n.atEnd", "", twins},
	{"late elements are on time", panesGo,
		"s.late, s.ended = s.late || s.since == 0, true", "s.ended = true", twins},
	{"a finished trigger takes elements", panesGo,
		"if s.closed {\n\t\t\tin.late", "if false {\n\t\t\tin.late", twins},
	{"the trigger of merged sessions is that of one", firingGo,
		"triggers = append(triggers, n.trigger)", "", twins},
	{"an operator's watermark is not restored", subtaskGo,
		"o.wm = n.Watermark\n", "", lateJobs},
	{"a source's watermark is stored before it is told", barrierGo,
		"n.Watermark = s.chain.w // the root", "n.Watermark = o.wm // the root", lateJobs},

	// Triggers (docs/design/triggers.md).
	{"a repeated trigger keeps what its parts have finished", machineGo,
		"if m.finished(s, i) {\n\t\tm.reset(s, i)", "if m.finished(s, i) {\n\t\ts.Finished &^= m.nodes[i].bit", triggers},
	{"a delay counts from the last element", machineGo,
		"if s.Slots[i] == 0 {", "if true {", triggers},
	{"until forgets at each firing of main", machineGo,
		"m.fire(s, main, now) // until", "m.clear(s, until)\n\t\tm.fire(s, main, now) // until", triggers},
	{"a part of AfterEach counts from before its turn", machineGo,
		"default:\n\t\t\t\tm.reset(s, p)", "default:", triggers},
	{"AfterFirst keeps what the part that was not ready waited for", machineGo,
		"} else {\n\t\t\t\tm.clear(s, p)\n\t\t\t}", "}", triggers},
	{"late firings count from before the end", machineGo,
		"m.reset(s, i)\n\t\t\ts.Finished |= n.bit", "s.Finished |= n.bit", triggers},
	{"an end that has fired in one window has in the merged one", machineGo,
		"bits := any&^m.times | every&m.times", "bits := any", triggers},
	{"a window that grows past the watermark stays late", machineGo,
		"if !now.ended() {\n\t\tbits &^=", "if false {\n\t\tbits &^=", triggers},
	{"a merged delay is the latest", machineGo,
		"from[i] < dst[i]", "from[i] > dst[i]", triggers},
	{"a merge brings back AfterFirst with parts that go on", machineGo,
		"if over || m.merged(dst, i) {", "if over && false || m.merged(dst, i) {", triggers},
	{"a wake-up by the clock is missed", machineGo,
		"w, c = min(w, pw), min(c, pc)\n\t\t}\n\tcase all:", "w, c = min(w, pw), max(c, pc)\n\t\t}\n\tcase all:", triggers},
	// docs/design/state.md.
	{"a block that a snapshot shares is changed", blocksGo,
		"if k.shared {", "if false {", blocks},
	{"a value lives a millisecond too long", cellGo,
		"at.Add(b.ttl) <= b.set.Now[b.clock]", "at.Add(b.ttl) < b.set.Now[b.clock]", cells},
	{"a read prolongs nothing", valueGo,
		"p.at < c.stamp() && c.set.Change(c.at) != nil", "false", reads},
	{"a timer finds dead what lived at its time", ttlGo,
		"return max(o.fired, o.call.at)", "return o.w", cells},
	{"a restored watermark counts as one that has fired", keyedGo,
		"if o.fired = b.fired; b.first {", "if true {", cells},
	{"what an element writes ahead of the watermark counts as written at the watermark", ttlGo,
		"max(now, stamp, eventtime.Min+1)", "max(now, eventtime.Min+1)", cells},
	{"a lookup that is too late stays", ttlGo,
		"has != (window.Window{}) && has.EndTime() <= first.Add(lag)", "has != (window.Window{})", cells},
	{"a state without anything leaves its lookup", keyedGo,
		"if err := o.forgetLookups(); err != nil {\n\t\t\treturn err\n\t\t}", "", cells},
	{"OnWindowExpiry is called for a key in which all has expired", timersGo,
		"o.ttl.drop(&e.acc, cell.Clock(clock), now)", "_, _ = cell.Clock(clock), now", cells},

	// Timers and holds, by the invariants of docs/design/timers.md.
	{"a hold that moves on holds where it was", clockGo,
		"if hold != m.hold {", "if hold < m.hold {", keyedSteps},
	{"a hold lies behind the watermark of the outputs", clockGo,
		"hold = min(max(hold, o.passed), lastTimer)", "hold = min(hold, lastTimer)", keyedSteps},
	{"the watermark passes what has still to fire", clockGo,
		"if !fired || !o.holds.settled(w) {", "if !o.holds.settled(w) {", keyedSteps},
	{"user code runs while an index is being taken apart", clockGo,
		"done, err := o.clock.tidy(budget, o.clock.move)", "done, err := true, error(nil)", keyedSteps},
	{"what is held for a key is held for all", clockGo,
		"	if o.call.e == nil {\n\t\treturn noTime\n\t}\n\treturn o.schema", "	if o.call.e == nil {\n\t\treturn o.passed\n\t}\n\treturn o.schema", keyedSteps},
	{"an element emits before what is held", pardoGo,
		"(e.held == nil || et < e.held())", "e.held == nil", keyedSteps},
	{"a timer sets a timer of the clock to the present", timersGo,
		"at = max(at, o.time()+1)", "at = max(at, o.time())", keyedSteps},
	{"what a timer of the clock sets in the past waits for its turn", timersGo,
		"byWatermark); when <= o.w {", "byWatermark); false && when <= o.w {", keyedSteps},
	{"a window ends without its timers of the clock", timersGo,
		"if e.acc.more != nil {\n\t\tif err := o.expireTimers(k, s, e)", "if false {\n\t\tif err := o.expireTimers(k, s, e)", keyedSteps},
	{"a tenth that is evicted while it is counted is counted twice", holdsGo,
		"if h.counting {", "if false {", holdIndex},
	{"a hold of a restored tenth is not counted", holdsGo,
		"tenths[0].counts != nil {\n\t\treturn true, nil", "len(tenths) > 1 {\n\t\treturn true, nil", holdIndex},
	{"a wider bucket of holds is left alone", holdsGo,
		"if !h.reach(w) {", "if true {", holdIndex},
	// Calls beside the subtask (docs/design/async.md).
	{"a full step gets elements", callsGo,
		"c.at() < i && c.ops[i]", "c.at() < -1 && c.ops[i]", asyncJobs},
	{"what is answered and not emitted is not in the snapshot", asyncGo,
		"rows := Rows[In]{make([]Element[In], len(o.pending))}\n\tfor i, k := range o.pending {",
		"rows := Rows[In]{make([]Element[In], len(o.pending))}\n\tfor i, k := range slices.DeleteFunc(slices.Clone(o.pending), func(k *asyncCall[In, Out]) bool { return k.answered }) {", async},
	{"the watermark passes calls in flight", asyncGo,
		"o.hold = min(o.hold, r.Time)", "_ = r", asyncJobs},
	{"what waits for its call holds nothing", asyncGo,
		"for _, k := range o.pending {\n\t\to.hold", "for _, k := range o.pending[:o.sent] {\n\t\to.hold", async},
	{"results come while a step behind is firing", callsGo,
		"if (c.firing || c.ticking || c.repeating) && c.at() > i {", "if false {", asyncJobs},
	{"a full step keeps its subtask awake", subtaskGo,
		"s.chain.advancing && !s.chain.full() {", "s.chain.advancing {", asyncJobs},
	{"calls outlive their job", callsGo,
		"for len(s.calls) > 0 {", "for false {", asyncJobs},
	// Of docs/design/sideviews.md.
	{"a side input counts for the watermark", sidesGo,
		"			to = &s.Merger\n", "", randomJobs},
	{"the root is not told of side inputs", sidesGo,
		"if w := side.Watermark(); w > side.told {", "if w := side.Watermark(); false {", randomJobs},
	{"a side input is not broadcast", splitGo,
		"for t := range s.targets {\n\t\tfor at", "for t := range 1 {\n\t\tfor at", randomJobs},
	{"an element does not wait for its view", sidedGo,
		"if !view.ready(win) {\n\t\t\tv = waits", "if !view.ready(win) {\n\t\t\tv = goesOn", sided},
	{"what waits does not hold the watermark", sidedGo,
		"next := min(o.w, o.wait.hold)\n\t\tif", "next := o.w\n\t\tif", sided},
	{"a restored step forgets that it was not done with the watermark", sidedGo,
		"o.firing, o.moved = true, true", "o.moved = true", sided},
	{"a restored step does not look for what is due", sidedGo,
		"o.firing, o.moved = true, true", "o.firing = true", sided},
	{"what waits is not in a base", sidedGo,
		"o.wait.table.cut(base)", "o.wait.table.cut(false)", sided},
	{"a part is seen before its pane is whole", viewGo,
		"if !p.Last {", "if false {", sided},
	{"a pane does not replace the ones before", viewGo,
		"		w.first = w.next\n", "", sided},
	{"a view that changed is not read anew", viewGo,
		"	w.next, w.bytes, w.coming = w.end, kept, 0\n\tv.forget(win)\n", "	w.next, w.bytes, w.coming = w.end, kept, 0\n", sided},
	{"a view goes before the main input's lateness is over", viewGo,
		"now >= expiry(v.order[n].win, v.Lateness)", "now >= v.order[n].win.EndTime()", sided},
	{"an evicted chunk is taken for the last", waitGo,
		"if e != nil {\n\t\t\tif last", "{\n\t\t\tif last", sided},
	{"what is left of the queues does not hold", waitGo,
		"	for _, o := range q.order {\n\t\tq.hold = min(q.hold, o.hold)\n\t}\n\treturn rows", "	return rows", sided},

	// Time.
	{"what fired for a watermark stays in its operator", chainGo,
		"if o.passes() > o.out {", "if false {", finder{"./runners/direct", "TestFinishBundle", nil}},
	{"a time between two milliseconds comes at the earlier one", eventtimeGo,
		"at = Clamp(at + 1)", "at = Clamp(at)", finder{"./internal/eventtime", "TestNotBefore", nil}},
	{"elements lie beyond the end of the global window", eventtimeGo,
		"return min(FromTime(t), EndOfGlobalWindow-1)", "return min(FromTime(t), Max-1)", endOfTime},
	{"watermarks lie beyond the end of the global window", eventtimeGo,
		"return min(t, EndOfGlobalWindow-1)", "return t", endOfTime},
	{"panes lie beyond the end of the global window", "sdk/window/window.go",
		"return min(w.end, eventtime.EndOfGlobalWindow) - 1", "return w.end - 1", endOfTime},

	// Changes that wait for a checkpoint.
	{"changes that are moved out of memory are forgotten", "internal/kernel/tablechanges.go",
		"if c.err = c.full.Write(c.scratch, c.last.Bytes()); c.err == nil {", "{", finder{"./internal/kernel", "TestChanges", nil}},
	{"pieces in a file lie on one another", "statebackend/pieces.go",
		"at = p.parts[n-1].at + p.parts[n-1].size", "at = p.parts[n-1].at", finder{"./statebackend", "TestPieces", nil}},
	{"a delta that is cut off is restored", checkpointGo,
		"if err == io.EOF && (v.size", "if err == io.EOF && false && (v.size", finder{"./internal/checkpoint", "Test", nil}},
}
