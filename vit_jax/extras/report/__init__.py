"""Reports runs on one page of HTML that needs no network: settings, results and cost."""
