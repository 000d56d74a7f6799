"""The commands, a module for each kind of them; `add_to` in each declares them. Imported when one of them is wanted."""
