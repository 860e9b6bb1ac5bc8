"""A memory on a chat model: lessons in activated adapters, a gate, and the list of facts."""
