package plan

// Names of Apache Beam's model. A test holds them against Beam's own.
const (
	urnRead          = "beam:transform:read:v1"
	urnParDo         = "beam:transform:pardo:v1"
	urnGroupByKey    = "beam:transform:group_by_key:v1"
	urnCombinePerKey = "beam:transform:combine_per_key:v1"
	urnFlatten       = "beam:transform:flatten:v1"
	urnReshuffle     = "beam:transform:reshuffle:v1"
	urnWindowInto    = "beam:transform:window_into:v1"

	urnGlobalWindows = "beam:window_fn:global_windows:v1"
	urnFixedWindows  = "beam:window_fn:fixed_windows:v1"
	urnSliding       = "beam:window_fn:sliding_windows:v1"
	urnSessions      = "beam:window_fn:session_windows:v1"

	urnBytes          = "beam:coder:bytes:v1"
	urnString         = "beam:coder:string_utf8:v1"
	urnVarInt         = "beam:coder:varint:v1"
	urnDouble         = "beam:coder:double:v1"
	urnBool           = "beam:coder:bool:v1"
	urnNullable       = "beam:coder:nullable:v1"
	urnIterable       = "beam:coder:iterable:v1"
	urnRow            = "beam:coder:row:v1"
	urnTimer          = "beam:coder:timer:v1"
	urnGlobalWindow   = "beam:coder:global_window:v1"
	urnIntervalWindow = "beam:coder:interval_window:v1"

	urnBagState = "beam:user_state:bag:v1"
	urnStateful = "beam:requirement:pardo:stateful:v1"
	urnOnExpiry = "beam:requirement:pardo:on_window_expiration:v1"
)

// Names of our own, with their payloads in docs/design/plan.md.
const (
	urnPipeline = "millstream:pipeline:v1"    // display data of the pipeline: a header
	urnStep     = "millstream:step:v1"        // annotation of a transform: a stepInfo
	urnProgram  = "millstream:environment:v1" // environment: the program itself; no payload
	urnCode     = "millstream:code:v1"        // user code: a code

	urnCalendar = "millstream:window_fn:calendar:v1" // a calendarPayload
	urnCustom   = "millstream:window_fn:custom:v1"   // a customPayload

	// Steps that are not Beam's: a code, and coders.
	urnUnslice       = "millstream:transform:unslice:v1"
	urnWrite         = "millstream:transform:write:v1"
	urnCoGroupByKey  = "millstream:transform:co_group_by_key:v1"
	urnLateGroup     = "millstream:transform:group_by_key_with_late:v1"
	urnLateCombine   = "millstream:transform:combine_per_key_with_late:v1"
	urnByte          = "millstream:coder:byte:v1"
	urnFloat         = "millstream:coder:float:v1"
	urnMap           = "millstream:coder:map:v1"
	urnUnportableRow = "millstream:coder:row:v1" // a row with a field that Beam's schemas have no type for
)
