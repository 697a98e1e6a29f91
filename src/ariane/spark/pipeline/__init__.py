"""Pipelines: a YAML file that says where rows come from, what is done with them and where they go; docs/pipelines.md.

    mistakes.py     what is wrong in a file, with its line
    nodes.py        YAML with the line of every value
    params.py       what --set can change, and ${NAME} in values
    model.py        a pipeline, as values
    sql_names.py    the views that a SQL text reads
    document.py     from YAML to the model
    document_parts.py  the same for sources, steps and sinks
    job_checks.py   options of jobs, and places that must be there
    checks.py       what can be wrong although each part is right: unknown views, cycles, options, functions
    load.py         all of the above; shipped.py has the files that come with Ariane
    frames.py views.py outputs.py  the same as data frames, for Spark
    batch_run.py stream_run.py jobs_run.py  until everything is done, or somebody stops it
    progress.py metrics.py  how far it is, for people and for programs
    project.py      a project for Spark's own declarative pipelines

All before frames.py needs no Spark, so that a mistake in a file is told before Spark starts.
"""
