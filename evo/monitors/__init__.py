"""Where progress goes. A monitor that fails is dropped with a warning; it never stops a campaign."""

from evo.monitors.base import Monitor, Monitors, Step
from evo.monitors.console import ConsoleMonitor
from evo.monitors.jsonl import JsonlMonitor

__all__ = ["ConsoleMonitor", "JsonlMonitor", "Monitor", "Monitors", "Step"]
