"""Archives of topics: Parquet files with a commit log of their own."""
