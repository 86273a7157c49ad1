"""The `openai` package against Coatcheck: only the address and the key are Coatcheck's.

.venv/bin/python -m examples.ollama_upstream &      # or a real Ollama
COATCHECK_LLM_URL=http://127.0.0.1:11434 make up
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/llm/with_openai.py

It needs the package: `pip install openai`, or `make setup-dev`.
"""

import json
import os

import openai

MODEL = "llama3.2"

address = os.environ.get("COATCHECK_URL", "http://127.0.0.1:8080").rstrip("/") + "/v1"
client = openai.OpenAI(base_url=address, api_key=os.environ["COATCHECK_API_KEY"], max_retries=0)

print("-- models")
print(", ".join(model.id for model in client.models.list()))

print("-- chat")
question = {"role": "user", "content": "Why is the sky blue?"}
raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=[question])
answer = raw.parse()
print(answer.choices[0].message.content)
print(f"{answer.choices[0].finish_reason}, {answer.usage.completion_tokens} tokens")
print("it was a job" if raw.headers["x-job-id"] in raw.headers["location"] else "it was no job")

print("-- streaming chat")
stream = client.chat.completions.create(
    model=MODEL,
    messages=[{"role": "user", "content": "And at night?"}],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.completion_tokens} tokens")

print("-- tools")
weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
messages = [{"role": "user", "content": "What will the weather be in Toronto for 3 days?"}]
asked = client.chat.completions.create(model=MODEL, messages=messages, tools=[weather])
message = asked.choices[0].message
for call in message.tool_calls:
    arguments = json.loads(call.function.arguments)
    print(f"{asked.choices[0].finish_reason}: {call.function.name}({arguments})")
    weather_text = f"{arguments['city']}: 11 degrees for {arguments['days']} days"
    tool_message = {"role": "tool", "tool_call_id": call.id, "content": weather_text}
    final = client.chat.completions.create(
        model=MODEL, messages=[*messages, message, tool_message], tools=[weather]
    )
    print(final.choices[0].message.content)

print("-- errors")
try:
    client.chat.completions.create(model="no-such-model", messages=messages)
except openai.NotFoundError as error:
    print(f"{type(error).__name__} {error.status_code}: {error.body['message']}")
try:
    client.chat.completions.create(model=MODEL, messages=messages, n=9)
except openai.BadRequestError as error:
    print(f"{type(error).__name__} {error.status_code}: {error.body['message']}")
try:
    openai.OpenAI(base_url=address, api_key="wrong", max_retries=0).models.list()
except openai.AuthenticationError as error:
    print(f"{type(error).__name__} {error.status_code}")
