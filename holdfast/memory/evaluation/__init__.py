"""What a memory knows, keeps and costs, measured side by side."""
