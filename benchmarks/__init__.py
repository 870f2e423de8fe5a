"""Speed, side by side with other ways of doing the same work; results with the machine they ran on in results/."""
