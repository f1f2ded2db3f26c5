"""How many replicas a demand needs: predicted from profiles, and tested."""
