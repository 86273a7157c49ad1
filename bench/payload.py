"""The payload every contender carries: 100 bytes of JSON with the job's number in it."""

PAYLOAD_BYTES = 100
_FRAME_BYTES = len('{"n":,"pad":""}')
_PADDING = {
    digits: "x" * (PAYLOAD_BYTES - _FRAME_BYTES - digits)
    for digits in range(1, PAYLOAD_BYTES - _FRAME_BYTES)
}


def payload_bytes(number: int) -> bytes:
    """The JSON of job `number`, for a contender whose API takes bytes."""
    digits = str(number)
    return f'{{"n":{digits},"pad":"{_PADDING[len(digits)]}"}}'.encode()


def payload_object(number: int) -> dict[str, int | str]:
    """The same payload for a contender whose API takes an object and serialises it itself."""
    return {"n": number, "pad": _PADDING[len(str(number))]}
