"""Run scripts, a shell and a Connect server whose Spark sessions understand Delta."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from typing import TYPE_CHECKING

from headwater.cli.output import write
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ScriptNotFoundError(HeadwaterError):
    """There is no script or module of this name."""


def run(target: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Run a script or a module as `python` does, with Headwater installed first."""
    from headwater.sql.install import install

    _use_java()
    install()
    if is_module:
        sys.argv = [target, *arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(target):
        raise ScriptNotFoundError(f"there is no script {target}. Give its path, or -m and the name of a module.")
    sys.argv = [target, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
    runpy.run_path(target, run_name="__main__")


def shell() -> None:
    """Start a Python shell with a session in it: IPython where it is installed."""
    from headwater.sql.enable import session

    spark = session("shell")
    names = {"spark": spark, "sc": spark.sparkContext, "hw": sys.modules["headwater"]}
    banner = f"Spark {spark.version} with Delta by Headwater. The session is `spark`, and `hw` is headwater."
    try:
        from IPython import start_ipython  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        import code

        code.interact(banner=banner, local=names, exitmsg="")
    else:
        write(banner + "\n")
        start_ipython(argv=[], user_ns=names)
    spark.stop()


def connect_server(host: str, port: int, settings: Sequence[str]) -> None:
    """Serve Spark Connect from this process until it is interrupted."""
    from headwater.sql.install import start_connect_server

    conf = dict(setting.split("=", 1) for setting in settings)
    _use_java()
    server = start_connect_server(host, port, conf)
    write(f"Spark Connect with Delta: sc://{host}:{server.port}   (Ctrl-C ends it)\n")
    sys.stdout.flush()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        ended.wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _use_java() -> None:
    """Let Spark find a Java, as `hw.session` does."""
    from headwater.spark.session.java import find_java

    os.environ.setdefault("JAVA_HOME", str(find_java().home))
