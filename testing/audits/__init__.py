"""What tests of the auditor share: histories, plays of its rules, and Kordons with one promise broken."""
