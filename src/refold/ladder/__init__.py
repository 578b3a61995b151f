"""Running the stages under the laws, and reporting what they did."""
