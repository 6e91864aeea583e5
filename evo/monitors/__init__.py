"""Where progress goes. A monitor that fails is dropped with a warning; it never stops a campaign."""

from evo.monitors.base import Monitor, Monitors, Step
from evo.monitors.behind import Behind
from evo.monitors.console import ConsoleMonitor
from evo.monitors.curves import TensorBoardMonitor, TrackerMonitor
from evo.monitors.jsonl import JsonlMonitor

__all__ = [
    "Behind",
    "ConsoleMonitor",
    "JsonlMonitor",
    "Monitor",
    "Monitors",
    "Step",
    "TensorBoardMonitor",
    "TrackerMonitor",
]
