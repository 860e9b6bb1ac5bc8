"""Facts proposed from documents, other wordings of questions, and the models that write both."""
