// Package fieldtest replays faults that public trackers report of systems like this one: each is a small input with its right
// answer. The pipelines run on both runners: directly, where they are disturbed and crashed, and as processes, of which one is
// killed.
//
// Cases are in groups, each of which has a rule that a property test holds: A windows, B windows that merge, C triggers and panes, D lateness
// and holds, E timers, F state, G watermarks, H joins and views, I keys and coders. A line of the table has the case, the fault, where it is tested
// (first here; of another package with its name), and on which runners. A script that moves the clock is for the direct runner alone, so
// that a case about it has no other, unless its answer does not depend on when the clock moves: then it runs on both, and by the clock directly.
//
//	A1 | an element before the epoch is in the next window | TestWindowsBeforeTheEpoch, runnertest.FixedWindows, window.TestFixedFloorsBeforeTheEpoch | both
//	A3 | elements between sliding windows crash, or count as late | TestElementsBetweenSlidingWindowsVanish, runnertest.SlidingWindowsWithGaps | both
//	A | no window wraps at the ends of time | TestWindowsAtTheEndsOfTime | both
//	A | start <= t < end; sums saturate | TestWindowsHoldAnyTime, kernel.TestExpiryNeverWraps | property
//	A | each way into a group has the same windows | TestGroupsOfAnyWindows | property
//	B1 | sessions of two keys merge, or the gap counts twice | TestSessionsArePerKey, runnertest.Sessions | both
//	B3 | an element whose own session is open revives one that is gone | TestClosedSessionsAreNotTouched | both
//	B5 | a second grouping merges the sessions of different keys again | TestSessionsDoNotMergeAgain | both
//	B | connected elements of a key, whatever their order | TestGroupsOfAnyWindows, e2e.TestPipelinesAreTheTwinInAnyOrder, e2e.TestPipelinesAreTheTwinOnWorkersThatAreKilled, twin.TestSessionsAreConnectedElements | property
//	C1 | each element begins the delay anew | TestDelayCountsFromTheFirstElement, runnertest.ProcessingTimeTrigger, triggering.TestScripts | direct
//	C3 | a count fires at the end of the window; early panes wait for it | TestCountsDoNotFireAtTheEndOfTheWindow | both
//	C5 | after a pane only the root of a trigger begins anew | TestRepeatedTriggersBeginAnewAsAWhole, triggering.TestScripts | direct
//	C7 | panes have one timestamp, whatever was asked for | TestTimestampsOfPanes, runnertest.TimestampsOfPanes | both
//	C | a trigger fires as its definition says, and a window closes once | e2e.TestPipelinesAreTheTwinEventByEvent, twin.TestTriggersMeanWhatTheyMean, twin.TestPanesIsTheTwin, triggering.TestRandomTriggersFireAsTheirHistorySays | property
//	D1 | an element is late for all of its sliding windows, or for none | TestLateForSomeOfItsWindows | both
//	D3 | a reshuffle moves timestamps, or drops what is late | TestReshuffleNeitherDropsNorShifts | both
//	D | late per window, at aggregations only; what is held is on time behind | e2e.TestPipelinesAreTheTwinOnWorkersThatAreKilled, twin.TestTracesAreLegal, twin.TestPanesIsTheTwin | property
//	E1 | a timer runs before its time, or though a later bundle cleared it | TestTimersRunAtTheirTimeUnlessCleared, kernel.TestTimerClearedByLaterBatchDoesNotFire | both
//	E3 | what a timer of the clock emits has the watermark of the moment | TestTimersOfTheClockHoldTheWatermark, kernel.TestProcessingTimerHoldsTheWatermarkAtItsElement | both
//	E5 | a timer that sets itself blocks the end of the job | TestLoopingTimersDoNotBlockTheEnd, kernel.TestLoopingProcessingTimerDoesNotBlockTheEnd | both
//	E | once, in order, at the last time that was set | TestTimersFireOnceAndInOrder, kernel.TestKeyedStepAgreesWithNaive | property
//	F1 | what was read changes with a later write | TestReadsAreSnapshots, state.TestBagThatWasReadDoesNotChange | both
//	F3 | to expire a key takes entries of those that its bytes begin | TestExpiryOfAKeyLeavesOthers, rocksdb.TestExpiryOfAKeyLeavesThoseThatItsBytesBegin | both
//	F5 | expired values are read, or never leave the files | TestValuesLiveAsLongAsTheirTTL, rocksdb.TestExpiredValuesLeaveTheFiles | both
//	F | cells hold what a plain map would | kernel.TestCellsAgreeWithNaive, statebackend.TestNoRangeHoldsAnEntryOfAnother | property
//	G1 | a restored split that gave nothing is left out of the watermark | TestRestoredSplitThatGaveNothingHoldsTheWatermark, direct.TestRestoredSplitThatWasNotReadHoldsTheWatermark | both
//	G3 | a reader without splits is at the end of time | TestReadersWithoutSplitsAreIdle, direct.TestSubtaskWithoutSplitsIsNotAtTheEndOfTime | both
//	G5 | a flatten with a silent stream never goes on | TestFlattenWithASilentStream, teststream.TestFlattenedSilentStream | both
//	G | what a split says as it falls silent is lost | TestWatermarkOfTheBatchWithWhichASplitFallsSilent | both
//	G | the least of all that must speak; it never goes back | TestNothingWithinItsBoundIsLate, engine.TestMergerAgreesWithItsDefinition | property
//	H1 | a left join says that there is no match, and then the match | TestLeftJoinSaysNullOnlyWhenNothingCanCome | both
//	H4 | an element waits for an empty side window for ever, or not at all | TestViewsOfEmptyWindows, sdk.TestMainWaitsForTheSideWindowAndNoLonger | both
//	H6 | the least of nothing is 0; empty windows have rows | TestAggregatesOfNothing, sdk.TestCombineOfNothing | both
//	H7 | a flatten of unlike windowings is taken, and fails later | TestFlattenOfUnlikeWindowingsIsRefused | construction
//	H | all pairs of a key and window | TestJoinsAreThoseOfCompleteWindows, kernel.TestSidedAsItsTwin | property
//	I1 | keys are told apart here by ==, there by their bytes | TestKeysAreTheirEncodings, runnertest.Keys | both
//	I3 | a string that is no UTF-8 stops the job for ever | TestStringsThatAreNotUTF8, TestErrorsThatAreNotUTF8EndTheJob, coder.TestStringsNeedNotBeUTF8 | both
//	I | a group for each encoding, on every way of a key | TestGroupsAreThoseOfEncodings, coder.TestRandomKeysAreEqualIfTheirBytesAre, coder.TestRandomTypesRoundTripAndAgreeWithTheNaiveEncoder | property
package fieldtest
