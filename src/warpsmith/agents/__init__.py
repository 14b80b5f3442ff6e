"""What coding agents are given: tools, resources and prompts over MCP, and a guide."""
