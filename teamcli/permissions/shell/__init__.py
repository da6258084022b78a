"""Reading command lines: strictly for rules that allow, at every depth for rules that ask or deny."""
