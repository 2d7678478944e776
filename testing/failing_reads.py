"""`python -m kordon.testing.failing_reads run …`: the usual `kordon`, which makes mistakes in what it reads.

It fails over requests with the correlation id `BAD_REQUEST`, and over answers to those with `BAD_ANSWER`.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs.look import Buffer
from kordon.proxy.commands.cli import main
from kordon.proxy.core.request_leg import RequestLeg
from kordon.proxy.core.response_leg import ResponseLeg

BAD_REQUEST: Final = 0x0BADF00D
BAD_ANSWER: Final = 0x0BADBEEF


def fail_over_marked_ones() -> None:
    """Has this process fail over marked messages."""
    receive_request, receive_answer = RequestLeg.receive, ResponseLeg.receive

    def fail_over_request(self: RequestLeg, chunk: memoryview, now: float) -> list[Buffer] | None:
        if BAD_REQUEST.to_bytes(4, "big") in chunk.tobytes():
            raise RuntimeError("it fails, for a test")
        return receive_request(self, chunk, now)

    def fail_over_answer(self: ResponseLeg, chunk: memoryview, now: float) -> list[Buffer] | None:
        if BAD_ANSWER.to_bytes(4, "big") in chunk.tobytes():
            raise RuntimeError("it fails, for a test")
        return receive_answer(self, chunk, now)

    RequestLeg.receive = fail_over_request  # type: ignore[method-assign]
    ResponseLeg.receive = fail_over_answer  # type: ignore[method-assign]


if __name__ == "__main__":
    fail_over_marked_ones()
    main(prog_name="kordon")
