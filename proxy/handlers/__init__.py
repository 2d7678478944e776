"""What Kordon does with each request that concerns managed topics: it passes, is translated, or is served here."""
