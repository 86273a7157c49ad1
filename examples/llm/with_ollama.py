"""The `ollama` package against Coatcheck: only the address and the key are Coatcheck's.

.venv/bin/python -m examples.ollama_upstream &      # or a real Ollama
COATCHECK_LLM_URL=http://127.0.0.1:11434 make up
COATCHECK_API_KEY=$(cat .coatcheck/dev-key) .venv/bin/python examples/llm/with_ollama.py

It needs the package: `pip install ollama`, or `make setup-dev`.
"""

import os

import ollama

MODEL = "llama3.2"

client = ollama.Client(
    os.environ.get("COATCHECK_URL", "http://127.0.0.1:8080"),
    headers={"Authorization": f"Bearer {os.environ['COATCHECK_API_KEY']}"},
)


def get_weather(city: str, days: int) -> str:
    """The weather of the next days.

    Args:
        city: where
        days: how many
    """
    return f"{city}: 11 degrees for {days} days"


print("-- models")
print(", ".join(model.model or "" for model in client.list().models))

print("-- chat")
answer = client.chat(MODEL, [{"role": "user", "content": "Why is the sky blue?"}])
print(answer.message.content)
print(f"{answer.done_reason}, {answer.eval_count} tokens")

print("-- streaming chat")
for piece in client.chat(MODEL, [{"role": "user", "content": "And at night?"}], stream=True):
    print(piece.message.content, end="", flush=True)
print()

print("-- tools")
messages = [{"role": "user", "content": "What will the weather be in Toronto for 3 days?"}]
asked = client.chat(MODEL, messages, tools=[get_weather])
for call in asked.message.tool_calls or []:
    print(f"{call.function.name}({dict(call.function.arguments)})")
    weather_text = get_weather(**call.function.arguments)
    tool_message = {"role": "tool", "tool_name": call.function.name, "content": weather_text}
    final = client.chat(MODEL, [*messages, asked.message, tool_message], tools=[get_weather])
    print(final.message.content)

print("-- JSON of a schema")
schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
print(client.generate(MODEL, "Her name is Ada, she is 36", format=schema).response)

print("-- embeddings")
(vector,) = client.embed("nomic-embed-text", "a sentence").embeddings
print(f"{len(vector)} numbers")

print("-- errors")
for model, think in (("no-such-model", False), (MODEL, True)):
    try:
        client.chat(model, messages, think=think)
    except ollama.ResponseError as error:
        print(f"{error.status_code}: {error.error}")
