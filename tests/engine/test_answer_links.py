"""Answer links on both stores: two processes sign and read them, and time is the store's."""

import asyncio

from allswell.domain.access.answer_link import PATH, VALID_FOR
from allswell.domain.ids import QuestionId
from allswell.domain.question import SKIP, AnswerAction, Option
from allswell.engine.access.keys import LinkService
from tests.engine.test_mesh_on_stores import Mesh, Play, play

__all__ = ["play"]
ORIGIN = "https://watch.example.org"


async def ask(mesh: Mesh, name: str) -> QuestionId:
    lease = await mesh.holding(name)
    return QuestionId(await lease.ask("Which way?", [Option("left", "Left", AnswerAction.RETRY), SKIP]))


async def sign(links: LinkService, question: QuestionId) -> str:
    (link,) = await links.sign_for(question, ORIGIN, "phone", "info.0")
    return link.url.removeprefix(ORIGIN + PATH)


def test_a_link_of_one_process_works_at_another_until_it_is_used_expired_or_revoked(play: Play) -> None:
    async def scene(mesh: Mesh) -> None:
        here, there = LinkService(mesh.here), LinkService(mesh.there)
        question, other = await ask(mesh, "a fork"), await ask(mesh, "another fork")
        made = await asyncio.gather(*[sign(links, question) for links in (here, there) for _ in range(3)])
        for token in made:  # the first secret was made once, whoever was first
            assert await here.offered(token) == await there.offered(token)
            offered = await there.offered(token)
            assert offered is not None
            assert (offered.link.question, offered.option.key) == (question, "left")
        used, kept = made[0], await sign(there, other)
        await mesh.there.answer(question, "left")
        assert await here.offered(used) is None
        assert await here.sign_for(question, ORIGIN, "phone", "info.0") == []
        await mesh.pass_time(VALID_FOR // 2)
        assert await here.offered(kept) is not None
        await mesh.pass_time(VALID_FOR // 2 + 1)
        assert await here.offered(kept) is None
        later = await sign(here, other)
        assert await here.offered(later) is not None
        revoked = await asyncio.gather(there.revoke_all("mia"), there.revoke_all("ben"))
        assert len({one.secret for one in revoked}) == 2
        for links in (here, there):
            assert await links.offered(later) is None
            assert await links.offered(await sign(links, other)) is not None
        assert sorted(event.data["by"] for event in await mesh.told("links_revoked")) == ["ben", "mia"]

    play(scene)
