"""What the outside gets as JSON, once for all interfaces: the command line, HTTP and MCP.

The rules, which a test holds every answer to (tests/interfaces/views):

- **Names**: `task_id`, `run_id`, `agent_id`, `question_id`, `receipt_id`, `request_id`, `step_id`; an attempt is a
  number, `attempt`.
- **Moments** are RFC 3339 texts in UTC with milliseconds, named `…_at`, or `deadline`.
- **Durations** are whole milliseconds, named `…_ms`.
- **Every field is always there**, null where there is nothing to say.
- **An answer is one object.** A list is a field of it, named after what it lists: `{"tasks": […]}`.
- **A stream is lines**, each a whole object: events, boards, what a supervisor says. The shape of a line does not
  depend on whether more will follow.
- **An error** is `{"error": {"kind", "code", "message", "where", "hint"}}` (`fields.py`).

Each noun has its file, and in it the Structs that are printed. What is worked out only to be shown has one Struct,
where it is worked out: `field(name=…)` gives its public names, and `Moment` its moments (`timing/moment.py`). What is
stored, or sent between our own processes, keeps its names, plain numbers and defaults, which only a migration changes:
a `…Shape` here stands beside it, and `as_shape` copies what has one name in both, so that only what differs is written
down. `of(…)` puts together a Shape of several things, or of what has to be worked out; Structs decide nothing.

JSON Schemas are made of these Structs (`interfaces/cli/schema.py`); `docs/reference/output.schema.json` holds them all.
"""
