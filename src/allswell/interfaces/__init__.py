"""Ways in and out of a watch (cli, tui, http, web, mcp, chat, notifications): they translate, and decide nothing."""
