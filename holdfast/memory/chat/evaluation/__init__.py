"""What a memory on a chat model knows, keeps and costs, measured side by side."""
