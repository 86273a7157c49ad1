"""What the TypeScript client is said to be is what it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from tests.markdown import REPOSITORY
from tests.typescript.documentation import REFERENCE
from tests.typescript.package import assert_is_built, node

NAMES = """
import * as coatcheck from "coatcheck";
const { Batch, Chat, Coatcheck, Job, SpeechTask } = coatcheck;
const client = new Coatcheck();
const parts = ["batches", "jobs", "llm", "speech", "uploads", "webhooks"];
const classes = [Coatcheck, Job, Chat, SpeechTask, Batch];
const prototypes = [...classes, ...parts.map((part) => client[part].constructor)]
  .flatMap((each) => [each.prototype, Object.getPrototypeOf(each.prototype)])
  .filter((each) => each !== Object.prototype);
const members = prototypes.flatMap((each) => Object.getOwnPropertyNames(each));
console.log(JSON.stringify([...Object.keys(coatcheck), ...parts, ...members]));
"""
# What the classes of the package use of each other, and its types do not show or call internal.
INTERNAL = {"constructor", "exchange", "learn", "learnTicket", "stateOf", "isWhole", "outcome"}
INTERNAL |= {"handInMore", "orderRerun", "tell", "items"}


async def test_every_name_and_method_is_in_the_reference() -> None:
    assert_is_built()
    arguments = ("--input-type=module", "--eval", NAMES)
    names = set(json.loads(await node(*arguments, env={"PATH": os.environ["PATH"]})))
    assert {"Coatcheck", "submit", "parts", "bulk", "wait", "explain"} <= names
    text = REFERENCE.text
    missing = {name for name in names - INTERNAL if not re.search(rf"[`. ]{name}\b", text)}
    assert missing == set()


def test_the_types_are_made_from_the_document_that_is_served() -> None:
    assert_is_built()
    script = REPOSITORY / "scripts" / "generate_typescript_types"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
