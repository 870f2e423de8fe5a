"""Run folders, written and read: records, responses, generated images, edits and verdicts."""
