"""The course's own small library: one idea a module, read by learners beside the lessons.

The way through it is the way of a measurement: ``settings`` (which server) -> ``engine`` (start, find, stop)
-> ``streaming`` (request to timeline) -> ``latency`` (TTFT, TTFAT, ITL) -> ``stats`` (percentiles with
intervals) -> ``figures``. No module here imports vllm, torch or transformers when it is imported.
"""
