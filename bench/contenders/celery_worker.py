"""What `celery -A bench.contenders.celery_worker worker` loads: the app with a live recorder."""

import os

from bench.contenders.celery_app import make_app
from bench.recorder import Recorder

app, _ = make_app(os.environ["BENCH_ADDRESS"], Recorder.from_environment())
