"""What both shells of the engine share: declarations, outcomes, stamps."""
