"""A memory for programs (OpenAI's protocol over HTTP, MCP), and its page for a browser."""
