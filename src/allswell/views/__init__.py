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

Each noun has its file, and in it the Struct that is printed, made of what the engine gives by `of(…)`. Structs decide
nothing. What is stored has names of its own, which only a migration changes: it is renamed here, on its way out.

JSON Schemas are made of these Structs (`interfaces/cli/schema.py`); `docs/reference/output.schema.json` holds them all.
"""
