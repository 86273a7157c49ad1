"""The ablation scenario: what each feature costs the exchange, in use and not in use."""
