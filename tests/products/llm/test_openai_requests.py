"""What OpenAI's clients ask for, said in Ollama's words; whatever would be lost is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from coatcheck.domain.errors import InvalidParameter
from coatcheck.products.llm.openai.answers import ChatTranslator
from coatcheck.products.llm.openai.fields import TranslatedRequest
from coatcheck.products.llm.openai.requests import translate_chat

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How it is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    },
}


def order(**fields: Any) -> TranslatedRequest:
    whole = {"model": "small", "messages": HELLO} | fields
    return translate_chat(msgspec.json.decode(json.dumps(whole), type=dict[str, msgspec.Raw]))


def native(**fields: Any) -> dict[str, Any]:
    """What is said to the target."""
    decoded: dict[str, Any] = {
        name: json.loads(bytes(raw)) for name, raw in order(**fields).fields.items()
    }
    return decoded


def test_a_plain_question_says_no_more_than_was_asked() -> None:
    assert native() == {"model": "small", "messages": HELLO}
    plain = order()
    assert (plain.kind, plain.stream, plain.turns, plain.image_urls) == ("chat", False, [], {})
    assert plain.translator == ChatTranslator()


def test_options_get_the_names_that_ollama_has_for_them() -> None:
    said = native(
        temperature=0.5,
        top_p=1,
        seed=7,
        stop="END",
        max_tokens=5,
        frequency_penalty=0.1,
        presence_penalty=-0.25,
    )
    assert said["options"] == {
        "temperature": 0.5,
        "top_p": 1,
        "seed": 7,
        "stop": ["END"],
        "num_predict": 5,
        "frequency_penalty": 0.1,
        "presence_penalty": -0.25,
    }


def test_of_two_bounds_of_tokens_the_newer_counts_and_ollamas_own_options_stay() -> None:
    said = native(max_tokens=5, max_completion_tokens=9, stop=["a", "b"], options={"num_ctx": 4096})
    assert said["options"] == {"num_ctx": 4096, "num_predict": 9, "stop": ["a", "b"]}


def test_null_is_as_good_as_nothing() -> None:
    said = native(temperature=None, stop=None, tools=None, response_format=None, n=None, seed=None)
    assert said == {"model": "small", "messages": HELLO}


def test_what_ollama_and_we_call_by_names_of_our_own_goes_on_untouched() -> None:
    extra = {"keep_alive": "5m", "think": "high", "webhook_url": "https://example.com/told"}
    assert native(**extra) == {"model": "small", "messages": HELLO} | extra


def test_texts_are_joined_and_images_are_set_apart() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,aGVsbG8=", "detail": "low"},
        },
        {"type": "text", "text": "And that?"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,d29ybGQ="}},
    ]
    (message,) = native(messages=[{"role": "user", "content": parts}])["messages"]
    assert message == {
        "role": "user",
        "content": "What is this?\nAnd that?",
        "images": ["aGVsbG8=", "d29ybGQ="],
    }


def test_an_image_elsewhere_is_left_to_be_fetched() -> None:
    url = "https://example.com/cat.png"
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    asked = order(messages=[*HELLO, {"role": "user", "content": parts}])
    assert asked.image_urls == {"messages[1].content[0].image_url.url": url}
    assert json.loads(bytes(asked.fields["messages"]))[1]["images"] == [url]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/cat.png",
        "cat.png",
        "file:///etc/passwd",
        "",
        "data:;base64,https://example.com/cat.png",
        "data:image/png;base64,HTTP://example.com/cat.png",
    ],
)
def test_what_is_no_address_of_an_image_is_refused(url: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(InvalidParameter) as refused:
        order(messages=[{"role": "user", "content": parts}])
    assert refused.value.field == "messages[0].content[0].image_url.url"


def test_more_images_than_are_fetched_are_refused() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": f"https://a.example/{n}"}} for n in range(17)
    ]
    with pytest.raises(InvalidParameter, match=r"content\[16\]"):
        order(messages=[{"role": "user", "content": parts}])


def test_a_developer_is_the_system() -> None:
    (message,) = native(messages=[{"role": "developer", "content": "Be brief."}])["messages"]
    assert message == {"role": "system", "content": "Be brief."}


def test_a_call_and_its_answer_go_back_as_ollama_has_them() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'},
    }
    asked, called, answered = native(
        messages=[
            *HELLO,
            # As the openai package gives it out: with everything that a message may have.
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ]
    )["messages"]
    assert asked == HELLO[0]
    assert called == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call_1",
                "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2}},
            }
        ],
    }
    assert answered == {
        "role": "tool",
        "content": "rain",
        "tool_call_id": "call_1",
        "tool_name": "weather",
    }


@pytest.mark.parametrize("arguments", ["[1]", "{", "no", '{"a": NaN}'])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(InvalidParameter, match=r"messages\[0\].tool_calls\[0\].function.arguments"):
        order(messages=[{"role": "assistant", "tool_calls": [call]}])


def test_tools_go_on_as_they_were_written_unless_none_shall_be_called() -> None:
    assert native(tools=[WEATHER])["tools"] == [WEATHER]
    assert native(tools=[WEATHER], tool_choice="auto")["tools"] == [WEATHER]
    assert "tools" not in native(tools=[WEATHER], tool_choice="none")


def test_formats_are_said_as_ollama_has_them() -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    by_schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert native(response_format=by_schema)["format"] == schema
    assert native(response_format={"type": "json_object"})["format"] == "json"
    assert "format" not in native(response_format={"type": "text"})


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", "low"), ("medium", "medium"), ("xhigh", "high")],
)
def test_effort_becomes_thinking(effort: str, think: object) -> None:
    assert native(reasoning_effort=effort)["think"] == think


def test_usage_is_told_in_a_stream_if_it_is_asked_for() -> None:
    assert order(stream=True).translator == ChatTranslator()
    asked = order(stream=True, stream_options={"include_usage": True})
    assert (asked.stream, asked.translator) == (True, ChatTranslator(include_usage=True))
    with pytest.raises(InvalidParameter, match="stream_options"):
        order(stream_options={"include_usage": True})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("logprobs", False),
        ("logit_bias", {}),
        ("modalities", ["text"]),
        ("store", False),
        ("service_tier", "auto"),
        ("parallel_tool_calls", True),
        ("user", "somebody"),
        ("metadata", {"a": "b"}),
        ("prompt_cache_key", "k"),
        ("safety_identifier", "s"),
    ],
)
def test_what_makes_no_difference_is_passed_over(field: str, value: object) -> None:
    assert native(**{field: value}) == {"model": "small", "messages": HELLO}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", True),
        ("n", 0),
        ("n", 9),
        ("parallel_tool_calls", "no"),
        ("tool_choice", "any"),
        ("tool_choice", {"type": "function", "function": {"name": "nobody"}}),
        ("tool_choice", {"type": "custom", "custom": {"name": "x"}}),
        ("tool_choice", {"name": "weather"}),
        ("logprobs", 0),
        ("top_logprobs", 3),
        ("logit_bias", {"50256": -100}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "ash", "format": "wav"}),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("store", True),
        ("service_tier", "flex"),
        ("web_search_options", {}),
        ("verbosity", "low"),
        ("tool_choice", "required"),
        ("tools", [{"type": "custom", "custom": {"name": "x"}}]),
        ("reasoning_effort", "enormous"),
        ("response_format", {"type": "grammar"}),
        ("response_format", {"type": "json_schema"}),
        ("temperature", "hot"),
        ("max_tokens", 1.5),
        ("stop", [1]),
        ("stream", "yes"),
        ("messages", []),
        ("messages", "Hello"),
        ("messages", [{"role": "function", "content": "x", "name": "f"}]),
        ("messages", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]),
        ("messages", [{"role": "user", "content": "x", "mood": "sad"}]),
        ("moods", ["sad"]),
    ],
)
def test_what_would_be_silently_lost_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter) as refused:
        order(**{field: value})
    assert refused.value.field.startswith(field)
    assert refused.value.location == "body"


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "function": {"name": "weather"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "weather"}}],
            },
        },
    ],
)
def test_a_call_that_must_be_made_is_what_the_answer_is_held_to(choice: object) -> None:
    said = native(tools=[WEATHER], tool_choice=choice)
    assert said["format"] == WEATHER["function"]["parameters"]  # type: ignore[index]
    assert "tools" not in said
    told, asked = said["messages"]
    assert told["role"] == "system"
    assert "weather" in told["content"]
    assert "How it is." in told["content"]
    assert asked == HELLO[0]


def test_one_of_several_functions_is_called_by_its_name() -> None:
    nested = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}},
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    tools = [WEATHER, {"type": "function", "function": {"name": "travel", "parameters": nested}}]
    said = native(
        tools=tools, tool_choice="required", messages=[{"role": "system", "content": "Be brief."}]
    )
    weather, travel = said["format"]["anyOf"]
    assert weather["properties"]["name"] == {"const": "weather"}
    assert list(travel["properties"]) == travel["required"] == ["name", "arguments"]
    place = travel["properties"]["arguments"]["$ref"].removeprefix("#/$defs/")
    moved = said["format"]["$defs"][place]
    assert moved["properties"]["at"] == {"$ref": f"#/$defs/{place}/$defs/Place"}
    assert moved["$defs"] == nested["$defs"]
    (told,) = said["messages"]
    assert told["content"].startswith("Be brief.\n\n")


def test_only_the_allowed_tools_are_offered() -> None:
    clock = {"type": "function", "function": {"name": "clock"}}
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "clock"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    said = native(tools=[WEATHER, clock], tool_choice=choice)
    assert said["tools"] == [clock]


def test_several_answers_are_several_turns_under_other_seeds() -> None:
    assert order(n=3).turns == [{}, {}]
    seeded = order(n=3, seed=7, temperature=0.5).turns
    assert [json.loads(bytes(each["options"])) for each in seeded] == [
        {"seed": 8, "temperature": 0.5},
        {"seed": 9, "temperature": 0.5},
    ]


def test_a_seed_among_ollamas_own_options_is_a_number_where_there_is_a_next_one() -> None:
    for seed in ("x", [1], 1.5):
        with pytest.raises(InvalidParameter) as refused:
            order(n=2, options={"seed": seed})
        assert refused.value.field == "options.seed"
        # One answer needs no next seed: what it may be is for the target to say.
        assert native(options={"seed": seed})["options"] == {"seed": seed}
    assert order(n=2, options={"seed": None}).turns == [{"options": msgspec.Raw(b'{"seed":null}')}]
    (turn,) = order(n=2, options={"seed": 7}).turns
    assert json.loads(bytes(turn["options"])) == {"seed": 8}


def test_log_probabilities_are_asked_for_as_ollama_has_them() -> None:
    assert native(logprobs=True)["logprobs"] is True
    said = native(logprobs=True, top_logprobs=3)
    assert (said["logprobs"], said["top_logprobs"]) == (True, 3)
    assert "logprobs" not in native(logprobs=False, top_logprobs=0)
    with pytest.raises(InvalidParameter, match="0 to 20"):
        order(logprobs=True, top_logprobs=21)
