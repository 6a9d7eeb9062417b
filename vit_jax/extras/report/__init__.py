"""What runs did, as one page of HTML that needs no network: what they were, gave and cost."""
