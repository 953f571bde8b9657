"""The Celery application. `celery -A worker.app worker -Q ingest` runs it; `gristmill up` does that for you."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import billiard.pool
from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_init, worker_process_init, worker_shutting_down

from worker.broker import INGEST_QUEUE, OCR_QUEUE, SEARCH_QUEUE, SYNC_QUEUE, transport_options
from worker.crash import arm_crash_points
from worker.embedded import Services, find_services
from worker.logs import configure_logging
from worker.process import die_first, die_with_parent
from worker.settings import Settings, load_settings
from worker.shutdown import announce_shutdown

OCR_NICE = 5

EXIT_LOOKS = 20
"""How often, ten times a second, a pool process that ends looks whether its last results were read."""

log = logging.getLogger(__name__)

# Celery warns of root for fear of pickled messages; ours are JSON and nothing else is accepted.
warnings.filterwarnings("ignore", category=SecurityWarning)


def task_time_limit(settings: Settings) -> float:
    """Seconds after which a pool process is killed: beyond anything that has a limit of its own."""
    return settings.extract_seconds * 2 + 600


def create_app(settings: Settings, services: Services) -> Celery:
    """A Celery application as this house wants it; see the comments for the reasons.

    Args:
        services: where the broker is; also the result backend where it can be one.
    """
    redis_like = services.broker_url.startswith(("redis", "valkey", "sentinel"))
    app = Celery(
        "gristmill",
        broker=services.broker_url,
        backend=services.broker_url if redis_like else "rpc://",
        include=["worker.tasks"],
        set_as_current=False,
    )
    limit = task_time_limit(settings)
    options = transport_options(services.broker_url, visibility_timeout=limit + 300)
    app.conf.update(
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        # The ledger knows every state; only the search task has an answer to give.
        task_ignore_result=True,
        result_expires=300,
        # Late, so that a message outlives its worker. Not on a lost child: a poison file would loop for ever.
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        worker_prefetch_multiplier=1,
        # The message of a killed process holds its place until then, and nobody is waited for: results are not kept.
        worker_lost_wait=1.0,
        task_time_limit=limit,
        task_default_queue=INGEST_QUEUE,
        task_routes={"gristmill.search": {"queue": SEARCH_QUEUE}},
        task_create_missing_queues=True,
        broker_transport_options=options,
        result_backend_transport_options={k: v for k, v in options.items() if k.startswith("socket")},
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=2,
        worker_send_task_events=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        # The table `syncs` knows what is due; a beat keeps no file, and any number of them may run.
        beat_scheduler="worker.sync.beat:SyncScheduler",
    )
    return app


def connect_app(settings: Settings, services: Services | None = None) -> Celery:
    """An application for producers and clients, of the broker in the settings or the embedded one that is running."""
    return create_app(settings, services or find_services(settings))


@setup_logging.connect
def _logging(**_: Any) -> None:
    configure_logging(load_settings().log_level)


@worker_init.connect
def _prepare_pool(sender: Any = None, **_: Any) -> None:
    """Load embedder and language model before the pool forks, so that their pages are shared. All are safe to fork.

    Processes are then small, and one that takes the place of a killed one is at work at once. OCR and syncs need
    neither. Where there is nothing to do but OCR, give way to those who read, ask and answer.
    """
    queues = set(sender.app.amqp.queues.consume_from)
    if queues == {SYNC_QUEUE}:
        return
    if queues == {OCR_QUEUE}:
        if hasattr(os, "nice"):
            os.nice(OCR_NICE)
        return
    from pipelines.embed import warm
    from pipelines.language import detect_language
    from worker.database import embedder_spec

    warm(embedder_spec(load_settings()))
    detect_language("The language model is loaded as well, by a sentence that is long enough to be judged.", "english")


@worker_process_init.connect
def _start_pool_process(**_: Any) -> None:
    die_with_parent()
    die_first()
    settings = load_settings()
    arm_crash_points(settings.home, settings.crash_at)
    # A warm shutdown forgets messages that are on their way into a pool process (celery.concurrency.asynpool, `flush`),
    # which works on them all the same, and then waits for 30 s to be told that its result was read.
    billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = EXIT_LOOKS


@worker_shutting_down.connect
def _tell_pool(**_: Any) -> None:
    announce_shutdown()


def __getattr__(name: str) -> Celery:
    # Read only when Celery's own command asks for it, so that importing this module needs no configuration.
    if name in ("app", "celery"):
        settings = load_settings()
        found = create_app(settings, find_services(settings))
        globals()["app"] = globals()["celery"] = found
        return found
    raise AttributeError(name)
