"""What tests share: oracles, models, faulty stores, helper processes."""
