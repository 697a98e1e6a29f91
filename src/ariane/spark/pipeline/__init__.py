"""Pipelines: a YAML file that declares sources, steps and sinks; docs/pipelines.md.

    model.py        a pipeline, as values
    document.py     YAML with line numbers, parameters, and the problems of a file
    load.py         from YAML to the model; the files that come with Ariane
    checks.py       checks across parts: unknown views, cycles, options, functions, jobs
    functions.py    Python steps, connection options, errors of Spark as errors of Ariane
    dataframes.py   sources, steps and sinks as data frames
    run.py          runs a pipeline: batch, stream or jobs
    progress.py     progress of each sink, for people and for programs
    project.py      a project for Spark's own declarative pipelines

Only dataframes.py and run.py import Spark, so that problems in a file are reported before Spark starts.
"""
