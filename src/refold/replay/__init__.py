"""What would each preset have done? Recorded sessions, replayed request by request, billed and checked."""
