"""An example remote for speech: turns text into a WAV with espeak-ng. Jobs are kept on disk.

It implements the HTTP protocol of remote jobs (``submit-job``, ``job-status``, ``job-result``,
``job-cancel``), sends callbacks if asked, and fails on demand.

    async with TtsRemote(folder) as remote:
        ...  # remote.url is what COATCHECK_SPEECH_REMOTE_URL would be

As a program: ``python -m examples.tts_remote --help``.
"""

from examples.tts_remote.faults import Fault
from examples.tts_remote.job_folders import End, JobFolders, Order
from examples.tts_remote.records import Request, Seen
from examples.tts_remote.remote import TtsRemote
from examples.tts_remote.speaking import NotInstalled

__all__ = ["End", "Fault", "JobFolders", "NotInstalled", "Order", "Request", "Seen", "TtsRemote"]
