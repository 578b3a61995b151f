"""Running the stages under the laws, and reporting what they did."""

from refold.ladder.report import Rejected, Report, StageReport
from refold.ladder.run import Climb, answer_nothing, climb, drive, drive_async

__all__ = ["Climb", "Rejected", "Report", "StageReport", "answer_nothing", "climb", "drive", "drive_async"]
