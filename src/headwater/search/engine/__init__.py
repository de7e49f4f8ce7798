"""The search engine: matching, ranking, snippets and aggregates over one split."""
