"""The steps of the research flow: one call of a model, and one page made of all the answers."""

import os
from pathlib import Path

import httpx

import allswell

provider = allswell.guard("provider")


async def ask(url: str, model: str, question: str) -> dict[str, str]:
    """One question to a model; retried by the guard under the client, within the step's own time."""
    said = {"model": model, "max_tokens": 1_000, "messages": [{"role": "user", "content": question}]}
    headers = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""), "anthropic-version": "2023-06-01"}
    transport = provider.transport(httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(base_url=url, headers=headers, transport=transport, timeout=None) as client:  # noqa: S113 - the scope's limit holds
        answer = await client.post("/v1/messages", json=said)
    answer.raise_for_status()
    return {"question": question, "answer": answer.json()["content"][0]["text"]}


def gather(topic: str, answers: list[dict[str, str]]) -> int:
    """One page of all the answers."""
    parts = [f"# {topic}", *(f"## {one['question']}\n\n{one['answer']}" for one in answers)]
    Path("answers.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return len(answers)
