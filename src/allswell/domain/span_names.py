"""What spans and their attributes are called, in one place: OpenTelemetry's names for agents, and ours beside them."""

from __future__ import annotations

INVOKE_WORKFLOW = "invoke_workflow"
"""A run of a flow."""
INVOKE_AGENT = "invoke_agent"
"""One attempt at a task, by a command under watch."""
EXECUTE_TOOL = "execute_tool"
"""The use of a tool: a function or a block in a `tool` scope, or a command that is run as one."""

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
TOKENS_IN = "gen_ai.usage.input_tokens"
TOKENS_OUT = "gen_ai.usage.output_tokens"

TASK = "allswell.task.id"
TASK_NAME = "allswell.task.name"
RUN = "allswell.run.id"
ATTEMPT = "allswell.attempt"
OUTCOME = "allswell.outcome"
COST = "allswell.cost_usd"
EXIT_CODE = "process.exit.code"
METHOD = "http.request.method"
STATUS = "http.response.status_code"
