"""What the chapters compute and draw: one group of files a chapter, pure functions over finished results.

00 health, sizing · 10 zeroth_order, zeroth_order_model, peak_memory · 11 consensus_views, consensus_explorer ·
12 one_bit, known_pool · 13 sentiment_table, sentiment_figures, sentiment_paper ·
20 dp_zeroth_order, dp_zeroth_order_clip, dp_zeroth_order_theory, dp_zeroth_order_figures ·
40 identification_views · 41 generation_views · 42 rates_views
Shared by chapters that train many runs: rows
"""
