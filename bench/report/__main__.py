"""Generates the report from bench/results: `python -m bench.report`."""

from bench.report.page import write_page

if __name__ == "__main__":
    print(write_page())
