"""Speak a text with the voice of a recording, and write a WAV file.

COATCHECK_API_KEY=$(.venv/bin/coatcheck token --user alice) \
  .venv/bin/python examples/speech/say.py me.wav "Your coat is ready." ready.wav
"""

import os
import sys
from pathlib import Path

import httpx2

recording, text, file = sys.argv[1:]
url = os.environ.get("COATCHECK_URL", "http://127.0.0.1:8080")
credential = {"Authorization": f"Bearer {os.environ['COATCHECK_API_KEY']}"}

with httpx2.Client(base_url=url, headers=credential, timeout=90, trust_env=False) as api:
    voice = api.post("/voices", files={"file": Path(recording).read_bytes()})
    body = {"voice_id": voice.raise_for_status().json()["voice_id"], "text": text, "language": "en"}
    task = api.post("/generate", json=body).raise_for_status().json()
    print(f"task {task['task_id']} is {task['status']}")
    while not task["terminal"]:
        task = api.get(task["urls"]["poll"], params={"wait": 60}).raise_for_status().json()

if task["status"] != "completed":
    sys.exit(f"{task['status']}: {task['error']}")
# The URL is signed: it needs no credential, and may be on another server.
audio = httpx2.get(httpx2.URL(url).join(task["result"]["audio_url"]), trust_env=False)
Path(file).write_bytes(audio.raise_for_status().content)
print(f"{file} plays for {task['result']['duration_seconds']} seconds")
