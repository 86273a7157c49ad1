"""Keeps one of each reference: code says the same things over and over."""

from __future__ import annotations

from sys import intern

from coatcheck_codegraph.facts import Call, FileFacts, Ref


class Sharing:
    """References that were met before take the place of their equals."""

    def __init__(self) -> None:
        self._known: dict[Ref, Ref] = {}

    def among(self, facts: FileFacts) -> FileFacts:
        """The same facts, changed in place to hold no reference twice."""
        share = self._known.setdefault
        facts.calls = [
            Call(call.line, call.caller, share(call.callee, call.callee), call.arguments)
            for call in facts.calls
        ]
        for declaration in facts.declarations:
            for held in (declaration.locals, declaration.fields):
                for name, ref in held.items():
                    held[name] = share(ref, ref)
        if facts.flows is not None:
            facts.flows.names = list(map(intern, facts.flows.names))
        return facts
