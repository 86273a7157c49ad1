"""The errors of speech: absent voices and generations, rejected recordings."""

from __future__ import annotations

from coatcheck.domain.errors import FileRejected, NotFound


class SpeechNotConfigured(NotFound):
    """No remote for speech is set. The message says which setting to set."""

    code = "speech_not_configured"
    public_text = None


class VoiceNotFound(NotFound):
    """This user has no such voice. Another user's id answers exactly like an absent one."""

    code = "voice_not_found"
    public_text = "There is no such voice."


class GenerationNotFound(NotFound):
    """This user has no such generation. Another user's id answers exactly like an absent one."""

    code = "generation_not_found"
    public_text = "There is no such generation."


class AudioRejected(FileRejected):
    """The reference recording cannot be used. ``details`` has the reason."""

    code = "audio_rejected"
